// refork: n=500 x=n:in:positive
int skip_blanks(int n, const int *x) {
    int i;
    for (i = 0; i < n && x[i] < 100; i++) ;
    return i;
}
