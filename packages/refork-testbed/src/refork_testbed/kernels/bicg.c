// refork: n=48 m=40 a=n*m p=m r=n q=n:out s=m:out
void bicg(int n, int m, const double *a, const double *p, const double *r, double *q, double *s) {
    int i, j;
    for (i = 0; i < m; i++) s[i] = 0;
    for (i = 0; i < n; i++) {
        q[i] = 0.0;
        for (j = 0; j < m; j++) {
            s[j] = s[j] + r[i] * a[i * m + j];
            q[i] = q[i] + a[i * m + j] * p[j];
        }
    }
}
