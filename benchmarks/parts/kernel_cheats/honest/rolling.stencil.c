void stencil(int n, const float *restrict u, float *restrict v) {
    float sums[n];
    for (int i = 1; i < n - 1; i++) {
        const float *up = u + (i - 1) * n, *row = up + n, *down = row + n;
        for (int j = 0; j < n; j++) sums[j] = up[j] + down[j] + row[j];
        for (int j = 1; j < n - 1; j++) v[i * n + j] = 0.2f * (sums[j] + row[j - 1] + row[j + 1]);
    }
}
