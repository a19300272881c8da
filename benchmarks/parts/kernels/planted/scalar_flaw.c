// Planted: a sum that C keeps in order, so that gcc adds one number at a time.
// refork: entry=dot n=16384 a=n b=n flops=2*n bytes=8*n rtol=1e-3
float dot(int n, const float *a, const float *b)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}
