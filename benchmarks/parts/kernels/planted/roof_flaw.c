// Planted: Horner's rule as 33 passes over arrays that no cache holds; each pass runs at the memory's speed.
// refork: entry=horner n=4194304 x=n y=n:out t=n:out flops=64*n bytes=12*n rtol=1e-3
void horner(int n, const float *restrict x, float *restrict y, float *restrict t)
{
    for (int i = 0; i < n; i++)
        y[i] = 0.5f * x[i];
    for (int step = 0; step < 16; step++) {
        for (int i = 0; i < n; i++)
            t[i] = x[i] + 0.5f * y[i];
        for (int i = 0; i < n; i++)
            y[i] = x[i] + 0.5f * t[i];
    }
}
