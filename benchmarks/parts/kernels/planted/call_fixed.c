// The same function, inlined.
// refork: entry=blend n=16384 x=n y=n:out flops=3*n bytes=8*n rtol=1e-3
static inline float smooth(float x)
{
    return x * x * (3.0f - 2.0f * x);
}
void blend(int n, const float *restrict x, float *restrict y)
{
    for (int i = 0; i < n; i++)
        y[i] = smooth(x[i]);
}
