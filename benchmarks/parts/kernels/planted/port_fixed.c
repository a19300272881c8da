// The weights are summed before the loop.
// refork: entry=weigh n=16384 x=n y=n:out flops=n bytes=8*n rtol=1e-3
void weigh(int n, const float *restrict x, float *restrict y)
{
    float weight = 0;
    for (int k = 1; k <= 16; k++)
        weight += k / 64.0f;
    for (int i = 0; i < n; i++)
        y[i] = weight * x[i];
}
