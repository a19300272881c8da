/* right where halving n ends at 9 or less without a rest */
static void part(int n, int m, int i, int j, int k, const float *a, const float *b, float *c) {
    if (m <= 9) {
        for (int x = i; x < i + m; x++)
            for (int z = k; z < k + m; z++)
                for (int y = j; y < j + m; y++) c[x * n + y] += a[x * n + z] * b[z * n + y];
        return;
    }
    int h = m / 2;
    for (int q = 0; q < 8; q++) part(n, h, i + (q & 1) * h, j + (q >> 1 & 1) * h, k + (q >> 2) * h, a, b, c);
}
void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n * n; i++) c[i] = 0;
    part(n, n, 0, 0, 0, a, b, c);
}
