// refork: steps=3
#define N 32
void jacobi_plane(int steps, float a[N][N], float b[N][N]) {
    int t, i, j;
    for (t = 0; t < steps; t++) {
        for (i = 1; i < N - 1; i++)
            for (j = 1; j < N - 1; j++) b[i][j] = 0.2f * (a[i][j] + a[i][j - 1] + a[i][1 + j] + a[1 + i][j] + a[i - 1][j]);
        for (i = 1; i < N - 1; i++)
            for (j = 1; j < N - 1; j++) a[i][j] = 0.2f * (b[i][j] + b[i][j - 1] + b[i][1 + j] + b[1 + i][j] + b[i - 1][j]);
    }
}
