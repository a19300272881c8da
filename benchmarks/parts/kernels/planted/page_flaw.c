// Planted: a scratch matrix of 32 MiB that the system maps and clears anew at every call.
// refork: entry=pairs n=2912 x=n:positive y=n:out flops=2*n*n bytes=8*n rtol=1e-3
#include <stdlib.h>
void pairs(int n, const float *restrict x, float *restrict y)
{
    float *t = malloc(sizeof(float) * n * n);
    if (!t)
        return;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            t[i * n + j] = x[i] * x[j];
    for (int j = 0; j < n; j++)
        y[j] = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            y[j] += t[i * n + j];
    free(t);
}
