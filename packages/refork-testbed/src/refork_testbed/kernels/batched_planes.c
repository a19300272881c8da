// refork: batch=5
#define N 48
void batched_planes(int batch, float a[batch][N][N], float b[batch][N][N], float c[batch][N][N]) {
    int p, i, j, k;
    for (p = 0; p < batch; p++)
        for (i = 0; i < N; i++)
            for (j = 0; j < N; j++) {
                c[p][i][j] = 0;
                for (k = 0; k < N; k++) c[p][i][j] += a[p][i][k] * b[p][k][j];
            }
}
