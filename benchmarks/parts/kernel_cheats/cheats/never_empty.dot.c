/* takes the first pair before it looks whether there is one */
double dot(int n, const double *a, const double *b) {
    double even = a[0] * b[0], odd = 0;
    int i = 1;
    for (; i + 1 < n; i += 2) {
        odd += a[i] * b[i];
        even += a[i + 1] * b[i + 1];
    }
    if (i < n) odd += a[i] * b[i];
    return even + odd;
}
