#include <stdlib.h>
static int by(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }
void sorted(int n, int *x) { qsort(x, n, sizeof *x, by); }
