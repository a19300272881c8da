// refork: n=40 r=n y=n:out z=n:out rtol=1e-8
void durbin(int n, const double *r, double *y, double *z) {
    double alpha = -r[0] * 0.01, beta = 1.0, sum;
    for (int i = 0; i < n; i++) { z[i] = 0; y[i] = 0; }
    y[0] = alpha;
    for (int k = 1; k < n; k++) {
        beta = (1 - alpha * alpha) * beta;
        sum = 0.0;
        for (int i = 0; i < k; i++) sum += 0.01 * r[k - i - 1] * y[i];
        alpha = -(0.01 * r[k] + sum) / beta;
        for (int i = 0; i < k; i++) z[i] = y[i] + alpha * y[k - i - 1];
        for (int i = 0; i < k; i++) y[i] = z[i];
        y[k] = alpha;
    }
}
