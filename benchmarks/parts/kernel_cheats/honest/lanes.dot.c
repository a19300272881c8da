double dot(int n, const double *restrict a, const double *restrict b) {
    double s[8] = {0}, sum = 0;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += a[i + k] * b[i + k];
    for (; i < n; i++) sum += a[i] * b[i];
    for (int k = 0; k < 8; k++) sum += s[k];
    return sum;
}
