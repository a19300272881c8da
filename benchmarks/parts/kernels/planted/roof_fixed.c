// The passes fused over blocks of 1024 numbers, which stay in the first-level cache.
// refork: entry=horner n=4194304 x=n y=n:out t=n:out flops=64*n bytes=12*n rtol=1e-3
#define BLOCK 1024
void horner(int n, const float *restrict x, float *restrict y, float *restrict t)
{
    for (int low = 0; low < n; low += BLOCK) {
        int high = low + BLOCK < n ? low + BLOCK : n;
        for (int i = low; i < high; i++)
            y[i] = 0.5f * x[i];
        for (int step = 0; step < 16; step++) {
            for (int i = low; i < high; i++)
                t[i] = x[i] + 0.5f * y[i];
            for (int i = low; i < high; i++)
                y[i] = x[i] + 0.5f * t[i];
        }
    }
}
