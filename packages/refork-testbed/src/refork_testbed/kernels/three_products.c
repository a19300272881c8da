// refork: flops=6*N*N*N
#define N 20
void three_products(double a[N][N], double b[N][N], double c[N][N], double d[N][N], double e[N][N], double f[N][N],
                    double g[N][N]) {
    int i, j, k;
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++) {
            e[i][j] = 0;
            for (k = 0; k < N; k++) e[i][j] += a[i][k] * b[k][j];
        }
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++) {
            f[i][j] = 0;
            for (k = 0; k < N; k++) f[i][j] += c[i][k] * d[k][j];
        }
    for (i = 0; i < N; i++)
        for (j = 0; j < N; j++) {
            g[i][j] = 0;
            for (k = 0; k < N; k++) g[i][j] += e[i][k] * f[k][j];
        }
}
