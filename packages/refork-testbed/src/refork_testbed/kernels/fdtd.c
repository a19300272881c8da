// refork: n=30 m=34 steps=3 ex=n*m:inout ey=n*m:inout hz=n*m:inout
void fdtd(int steps, int n, int m, float *ex, float *ey, float *hz) {
    int t, i, j;
    for (t = 0; t < steps; t++) {
        for (j = 0; j < m; j++) ey[j] = t;
        for (i = 1; i < n; i++)
            for (j = 0; j < m; j++) ey[i * m + j] -= 0.5f * (hz[i * m + j] - hz[(i - 1) * m + j]);
        for (i = 0; i < n; i++)
            for (j = 1; j < m; j++) ex[i * m + j] -= 0.5f * (hz[i * m + j] - hz[i * m + j - 1]);
        for (i = 0; i < n - 1; i++)
            for (j = 0; j < m - 1; j++)
                hz[i * m + j] -= 0.7f * (ex[i * m + j + 1] - ex[i * m + j] + ey[(i + 1) * m + j] - ey[i * m + j]);
    }
}
