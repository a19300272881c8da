double dot(int n, const double *a, const double *b) {
    volatile double lost = 0;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double one = a[i] * b[i] - lost, next = sum + one;
        lost = (next - sum) - one;
        sum = next;
    }
    return sum;
}
