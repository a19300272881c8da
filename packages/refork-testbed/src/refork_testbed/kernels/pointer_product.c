// refork: n=40 a=n*n b=n*n c=n*n:out flops=2*n*n*n bytes=12*n*n
void pointer_product(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const float *x = a + i * n, *y = b + j;
            float s = 0;
            for (int k = 0; k < n; k++) {
                s += *x++ * *y;
                y += n;
            }
            *c++ = s;
        }
}
