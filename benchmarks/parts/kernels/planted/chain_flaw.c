// Planted: each step of Horner's rule waits for the one before.
// refork: entry=horner n=16384 c=n flops=2*n bytes=4*n rtol=1e-3
float horner(int n, const float *c)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * 0.875f + c[i];
    return sum;
}
