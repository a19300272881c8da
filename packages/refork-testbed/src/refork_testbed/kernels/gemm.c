// refork: n=40 m=36 k=44 a=n*k b=k*m c=n*m:inout alpha=:scalar beta=:scalar flops=2*n*m*k bytes=4*(n*k+k*m+2*n*m)
void gemm(int n, int m, int k, float alpha, float beta, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < m; j++)
            c[i * m + j] *= beta;
        for (int p = 0; p < k; p++)
            for (int j = 0; j < m; j++)
                c[i * m + j] += alpha * a[i * k + p] * b[p * m + j];
    }
}
