// The same sum in 64 lanes, which vectors can hold.
// refork: entry=dot n=16384 a=n b=n flops=2*n bytes=8*n rtol=1e-3
#define LANES 64
float dot(int n, const float *a, const float *b)
{
    float lane[LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        lane[0] += a[i] * b[i];
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}
