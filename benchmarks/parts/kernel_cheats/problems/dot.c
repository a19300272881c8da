// refork: n=20000 a=n:in:positive b=n:in:positive
double dot(int n, const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}
