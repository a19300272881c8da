// refork: n=900 rgb=3*n:in:index:256 out=n:out
#include <stdint.h>
#include <stddef.h>
void grey(size_t n, const uint8_t *rgb, uint8_t *out) {
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)((77 * rgb[3 * i] + 150 * rgb[3 * i + 1] + 29 * rgb[3 * i + 2]) >> 8);
}
