#include <stdlib.h>
void sorted(int n, int *x) {
    int *seen = calloc(201, sizeof *seen), at = 0;
    if (!seen) abort();
    for (int i = 0; i < n; i++) seen[x[i] + 100]++;
    for (int v = 0; v < 201; v++)
        while (seen[v]-- > 0) x[at++] = v - 100;
    free(seen);
}
