// Planted: s may overlap a for all the compiler knows, so every step of a sum goes to memory.
// refork: entry=sums n=400 a=n*n s=n:out flops=n*n bytes=4*n*n+4*n rtol=1e-3
void sums(int n, const float *a, float *s)
{
    for (int i = 0; i < n; i++) {
        s[i] = 0;
        for (int j = 0; j < n; j++)
            s[i] += a[i * n + j];
    }
}
