// refork: n=1000 x=n y=n
double pointer_dot(int n, const double *x, const double *y) {
    double s = 0;
    while (n-- > 0) s += *x++ * *y++;
    return s;
}
