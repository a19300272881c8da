// refork: n=96 m=80 a=n*m b=n*m:out
void transpose(int n, int m, const float *a, float *b) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) b[j * n + i] = a[i * m + j];
}
