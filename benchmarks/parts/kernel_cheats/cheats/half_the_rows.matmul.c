void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i += 2)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = c[(i + 1) * n + j] = sum;
        }
}
