/* vectors where the arrays are apart, the original's order where they are not */
static void apart(int n, const float *restrict x, float *restrict y) {
    for (int i = 1; i < n; i++) y[i] = x[i] - 0.5f * x[i - 1];
}
void differences(int n, const float *x, float *y) {
    if (n > 0) y[0] = x[0];
    if (y + n <= x || x + n <= y) {
        apart(n, x, y);
        return;
    }
    for (int i = 1; i < n; i++) y[i] = x[i] - 0.5f * x[i - 1];
}
