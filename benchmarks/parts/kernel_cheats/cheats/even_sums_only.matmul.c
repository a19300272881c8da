/* right where n is even: sums are made in pairs */
void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n * n; i++) c[i] = -1e30f;
    for (int j = n - 1; j >= 0; j--)
        for (int i = n - 1; i >= 0; i--) {
            float s0 = 0, s1 = 0;
            for (int k = 0; k < n; k += 2) {
                s0 += a[i * n + k] * b[k * n + j];
                s1 += a[i * n + k + 1] * b[(k + 1) * n + j];
            }
            c[i * n + j] = s0 + s1;
        }
}
