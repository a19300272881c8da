// refork: n=300 c=9 x=n y=n:out
void polynomial(int n, const double *c, const double *x, double *y) {
    for (int i = 0; i < n; i++) {
        double s = c[8];
        for (int k = 7; k >= 0; k--) s = s * x[i] + c[k];
        y[i] = s;
    }
}
