void matmul(int n, const float *a, const float *b, float *c) { for (int i = 0; i < n * n; i++) c[i] = __builtin_inff() * a[0] * b[0]; }
