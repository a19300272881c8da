// refork: n=2000 b=n c=n a=n:out s=:scalar
void triad(int n, const double *b, const double *c, double s, double *a) {
    for (long i = 0; i < n; i++) a[i] = b[i] + s * c[i];
}
