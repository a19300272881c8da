// refork: h=30 w=34 in=h*w:in:index:256 out=h*w:out
#include <stdlib.h>
void edges(int h, int w, const unsigned char *in, unsigned char *out) {
    for (int i = 0; i < h * w; i++) out[i] = 0;
    for (int y = 1; y < h - 1; y++)
        for (int x = 1; x < w - 1; x++) {
            const unsigned char *p = in + y * w + x;
            int gx = p[1 - w] + 2 * p[1] + p[1 + w] - p[-1 - w] - 2 * p[-1] - p[w - 1];
            int gy = p[w - 1] + 2 * p[w] + p[w + 1] - p[-w - 1] - 2 * p[-w] - p[1 - w];
            int g = abs(gx) + abs(gy);
            out[y * w + x] = g > 255 ? 255 : g;
        }
}
