// refork: n=50 m=28 data=n*m:inout mean=m:out cov=m*m:out
void covariance(int n, int m, float *data, float *mean, float *cov) {
    int i, j, k;
    for (j = 0; j < m; j++) {
        mean[j] = 0.0f;
        for (i = 0; i < n; i++) mean[j] += data[i * m + j];
        mean[j] /= (float)n;
    }
    for (i = 0; i < n; i++)
        for (j = 0; j < m; j++) data[i * m + j] -= mean[j];
    for (i = 0; i < m; i++)
        for (j = i; j < m; j++) {
            cov[i * m + j] = 0.0f;
            for (k = 0; k < n; k++) cov[i * m + j] += data[k * m + i] * data[k * m + j];
            cov[i * m + j] /= (float)n - 1.0f;
            cov[j * m + i] = cov[i * m + j];
        }
}
