/* right where n is a multiple of 16 */
double dot(int n, const double *a, const double *b) {
    double s[16] = {0}, sum = 0;
    for (int i = 0; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) s[k] += a[i + k] * b[i + k];
    for (int k = 0; k < 16; k++) sum += s[k];
    return sum;
}
