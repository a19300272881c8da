// refork: n=96 a=n*n:in:const:0.5 b=n*n:in:const:0.25 c=n*n:out flops=2*n*n*n bytes=3*4*n*n
void fixed(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
