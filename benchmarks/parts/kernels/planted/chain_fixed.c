// 96 independent chains, each with the 96th power, joined after the loop.
// refork: entry=horner n=16384 c=n flops=2*n bytes=4*n rtol=1e-3
#define CHAINS 96
float horner(int n, const float *c)
{
    float lane[CHAINS] = {0}, power = 1, sum = 0;
    for (int l = 0; l < CHAINS; l++)
        power *= 0.875f;
    int i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (int l = 0; l < CHAINS; l++)
            lane[l] = lane[l] * power + c[i + l];
    for (int l = 0; l < CHAINS; l++)
        sum = sum * 0.875f + lane[l];
    for (; i < n; i++)
        sum = sum * 0.875f + c[i];
    return sum;
}
