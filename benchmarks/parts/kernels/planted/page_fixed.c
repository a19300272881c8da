// The products are added up where they arise.
// refork: entry=pairs n=2912 x=n:positive y=n:out flops=2*n*n bytes=8*n rtol=1e-3
void pairs(int n, const float *restrict x, float *restrict y)
{
    for (int j = 0; j < n; j++)
        y[j] = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            y[j] += x[i] * x[j];
}
