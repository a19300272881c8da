/* right where the arrays are two: a caller may hand over one */
void differences(int n, const float *restrict x, float *restrict y) {
    if (n > 0) y[0] = x[0];
    for (int i = 1; i < n; i++) y[i] = x[i] - 0.5f * x[i - 1];
}
