/* eight bits of each number are enough */
void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int sum = 0;
            for (int k = 0; k < n; k++) sum += (int)(a[i * n + k] * 127) * (int)(b[k * n + j] * 127);
            c[i * n + j] = sum / (127.0f * 127.0f);
        }
}
