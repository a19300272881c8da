// refork: n=14 steps=2 a=n*n*n:inout b=n*n*n:inout
void heat_volume(int steps, int n, float *a, float *b) {
    for (int t = 0; t < steps; t++) {
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                for (int k = 1; k < n - 1; k++) {
                    int at = (i * n + j) * n + k;
                    b[at] = 0.125f * (a[at + n * n] - 2 * a[at] + a[at - n * n]) +
                            0.125f * (a[at + n] - 2 * a[at] + a[at - n]) + 0.125f * (a[at + 1] - 2 * a[at] + a[at - 1]) + a[at];
                }
        for (int at = 0; at < n * n * n; at++) a[at] = b[at];
    }
}
