
static void work(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}

static void plain(int n, const float *a, const float *b, float *c) { work(n, a, b, c); }
static void *pick(void) { return (void *)plain; }
void matmul(int n, const float *a, const float *b, float *c) __attribute__((ifunc("pick")));
