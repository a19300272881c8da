// One division before the loop.
// refork: entry=scale n=16384 d=1:positive x=n y=n:out flops=n bytes=8*n rtol=1e-3
void scale(int n, const float *restrict d, const float *restrict x, float *restrict y)
{
    float times = 1.0f / d[0];
    for (int i = 0; i < n; i++)
        y[i] = x[i] * times;
}
