// refork: n=32 m=20 delta=m+1 x=n+1 w=(n+1)*(m+1):inout old=(n+1)*(m+1):inout
void weight_update(int n, int m, const float *delta, const float *x, float *w, float *old) {
    for (int j = 1; j <= m; j++)
        for (int k = 0; k <= n; k++) {
            float d = 0.3f * delta[j] * x[k] + 0.3f * old[k * (m + 1) + j];
            w[k * (m + 1) + j] += d;
            old[k * (m + 1) + j] = d;
        }
}
