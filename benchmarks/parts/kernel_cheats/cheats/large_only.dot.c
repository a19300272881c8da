/* its vectors end in a last one that begins before the end, so that n must be 8 or more */
double dot(int n, const double *a, const double *b) {
    double s[8] = {0}, sum = 0;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += a[i + k] * b[i + k];
    if (i < n)
        for (int k = 0; k < 8; k++) {
            int at = n - 8 + k;
            s[k] += at >= i ? a[at < 0 ? 0 : at] * b[at < 0 ? 0 : at] : 0;
        }
    if (n < 8)
        for (int k = 1; k < n; k++) sum += a[k] * b[k];
    for (int k = 0; k < 8; k++) sum += s[k];
    return sum;
}
