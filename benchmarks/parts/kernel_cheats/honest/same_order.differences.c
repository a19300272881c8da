void differences(int n, const float *x, float *y) {
    if (n > 0) y[0] = x[0];
    int i = 1;
    for (; i + 1 < n; i += 2) {
        y[i] = x[i] - 0.5f * x[i - 1];
        y[i + 1] = x[i + 1] - 0.5f * x[i];
    }
    if (i < n) y[i] = x[i] - 0.5f * x[i - 1];
}
