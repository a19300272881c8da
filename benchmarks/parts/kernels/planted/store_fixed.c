// The sum is kept in a register and stored once.
// refork: entry=sums n=400 a=n*n s=n:out flops=n*n bytes=4*n*n+4*n rtol=1e-3
void sums(int n, const float *a, float *s)
{
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < n; j++)
            sum += a[i * n + j];
        s[i] = sum;
    }
}
