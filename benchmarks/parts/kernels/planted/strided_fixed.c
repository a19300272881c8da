// The loops interchanged: the inner one runs along memory.
// refork: entry=columns n=512 a=n*n s=n:out flops=n*n bytes=4*n*n+4*n rtol=1e-3
void columns(int n, const float *restrict a, float *restrict s)
{
    for (int j = 0; j < n; j++)
        s[j] = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            s[j] += a[i * n + j];
}
