/* reads eight before it writes eight */
void differences(int n, const float *x, float *y) {
    float t[9] = {0};
    for (int i = 0; i < n; i += 8) {
        int m = n - i < 8 ? n - i : 8;
        for (int k = 0; k < m; k++) t[k + 1] = x[i + k];
        for (int k = 0; k < m; k++) y[i + k] = t[k + 1] - 0.5f * t[k];
        t[0] = t[8];
    }
}
