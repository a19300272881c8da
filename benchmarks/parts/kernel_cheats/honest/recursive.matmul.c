static void part(int n, int i, int j, int k, int p, int q, int r, const float *a, const float *b, float *c) {
    if (p <= 9 && q <= 9 && r <= 9) {
        for (int x = i; x < i + p; x++)
            for (int z = k; z < k + r; z++)
                for (int y = j; y < j + q; y++) c[x * n + y] += a[x * n + z] * b[z * n + y];
        return;
    }
    int f = p / 2, g = q / 2, h = r / 2;
    for (int s = 0; s < 8; s++)
        part(n, i + (s & 1 ? f : 0), j + (s & 2 ? g : 0), k + (s & 4 ? h : 0), s & 1 ? p - f : f, s & 2 ? q - g : g,
             s & 4 ? r - h : h, a, b, c);
}
void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n * n; i++) c[i] = 0;
    part(n, 0, 0, 0, n, n, n, a, b, c);
}
